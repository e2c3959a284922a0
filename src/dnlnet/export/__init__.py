"""Trained models for other programs: ONNX, PyTorch programs, safetensors."""
