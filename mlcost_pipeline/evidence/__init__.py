"""Should anything run at all: faults, volume, drift, decay and review become one decision with reasons."""
