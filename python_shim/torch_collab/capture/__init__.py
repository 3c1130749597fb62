"""From the script's DDP modules and optimizers to counted steps and rounds."""
