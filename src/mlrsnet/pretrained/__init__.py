"""The schedules that come with the package, one safetensors file each; `mlrsnet.files.names.list_schedules()` names them."""
