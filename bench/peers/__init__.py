"""What is measured: the service, and others. Each runs on 127.0.0.1, with files of its own."""
