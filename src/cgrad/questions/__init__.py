"""The questions gradcheck asks, one file each. A question adds evidence; it knows nothing of the others."""
