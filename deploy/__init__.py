"""What runs FedEAS in production; see README.md here."""
