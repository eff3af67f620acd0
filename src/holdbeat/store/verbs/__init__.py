"""The Store's verbs: each is a function on a Transaction, and its docstring says what it guarantees."""
