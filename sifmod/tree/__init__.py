"""What is on disk: layout, locks, store, generations, receipts."""
