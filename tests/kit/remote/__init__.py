"""A remote queue manager that is read by us: as the documents describe one, with faults, other readers and bad manners."""
