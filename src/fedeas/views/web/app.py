"""The app that ``fedeas planner`` serves: the page, behind the check of each request."""

from starlette.middleware import Middleware
from streamlit.starlette import App

from fedeas.views.web.serving import PAGE, OwnRequests

app = App(PAGE, middleware=[Middleware(OwnRequests)])
