"""Programs for developers: generators of files, measurements and screenshots for the documentation, and
checks of the code and tests."""
