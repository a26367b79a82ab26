"""Export of a client's predictor: safetensors, a model card and ONNX."""
