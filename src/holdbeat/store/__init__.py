"""The Store: one contract (adapter), two engines (sqlite, postgres), and verbs that both run alike."""
