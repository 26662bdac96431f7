"""Weights are put into the cache folder, and found there by name."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import torch
from safetensors.torch import save, save_file

from fedeas import InputError
from fedeas.core.weight_files import generator_weights, get_weights

CONTENT = save({"x": torch.arange(3.0)})


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


class Hub(BaseHTTPRequestHandler):
    """One file, with the headers that the Hub's client asks for."""

    def do_HEAD(self):
        found = self.path == "/owner/models/resolve/main/small/own.safetensors"
        self.send_response(200 if found else 404)
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(CONTENT)) if found else "0")
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(CONTENT)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    yield
    server.shutdown()
    server.server_close()


def test_weights_from_the_hub_are_found_by_name(hub, cache):
    assert get_weights("hub:owner/models/small/own.safetensors") == cache / "own.safetensors"
    assert generator_weights("own").read_bytes() == CONTENT


def test_weights_that_the_hub_does_not_have_are_refused_with_the_place_to_copy_them_to(hub, cache):
    with pytest.raises(InputError) as caught:
        get_weights("hub:owner/models/other.safetensors")
    assert str(cache / "other.safetensors") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_copied_under_its_own_name_or_another(tmp_path, cache):
    save_file({"x": torch.zeros(1)}, tmp_path / "mine.safetensors")
    assert get_weights(str(tmp_path / "mine.safetensors")) == cache / "mine.safetensors"
    assert get_weights(str(tmp_path / "mine.safetensors"), "yours") == cache / "yours.safetensors"


def test_the_result_of_a_training_gets_the_name_of_its_folder(tmp_path, cache):
    (tmp_path / "cats").mkdir()
    save_file({"x": torch.zeros(1)}, tmp_path / "cats" / "generator.safetensors")
    assert get_weights(str(tmp_path / "cats" / "generator.safetensors")) == cache / "cats.safetensors"


@pytest.mark.parametrize("source", ["nowhere", "hub:owner", "hub:owner/models/picture.png", "missing.safetensors"])
def test_what_cannot_be_fetched_is_refused_in_one_line(source, cache):
    with pytest.raises(InputError) as caught:
        get_weights(source)
    assert "\n" not in str(caught.value)
    assert not cache.exists()


def test_a_file_without_tensors_is_refused_and_not_kept(tmp_path, cache):
    (tmp_path / "odd.safetensors").write_text("no tensors")
    with pytest.raises(InputError):
        get_weights(str(tmp_path / "odd.safetensors"))
    assert not cache.exists()
