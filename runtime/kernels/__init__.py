"""Host operators in numpy, by subject: each is a row of runtime/hostops.py, which says what it takes."""
