"""cgrad: write a derivative in TensorFlow, apply it, check it."""
