"""Networks: ResNet-18 and a small CNN, their layers, and several of them stacked into one."""
