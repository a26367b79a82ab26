"""A client's predictor as files: safetensors, a card, ONNX."""
