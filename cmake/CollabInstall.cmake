# Install and export the torch-free core: `find_package(collab)` gives collab::<folder> targets.
