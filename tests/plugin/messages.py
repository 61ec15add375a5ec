"""The messages of the device plugin API, and beside them the API's own names and numbers.

The classes come from what protoc-c has read, so that a test speaks the language of the plugin's .proto; FIELDS says
independently of that what a kubelet speaks.
"""
import os

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# message -> {field: (number, type)}, as kubelets have them; "+": repeated.
FIELDS = {
    "Empty": {},
    "DevicePluginOptions": {"pre_start_required": (1, "bool"), "get_preferred_allocation_available": (2, "bool")},
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "NUMANode": {"ID": (1, "int64")},
    "TopologyInfo": {"nodes": (1, "NUMANode+")},
    "Device": {"ID": (1, "string"), "health": (2, "string"), "topology": (3, "TopologyInfo")},
    "ListAndWatchResponse": {"devices": (1, "Device+")},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs": (1, "string+"),
        "must_include_deviceIDs": (2, "string+"),
        "allocation_size": (3, "int32"),
    },
    "PreferredAllocationRequest": {"container_requests": (1, "ContainerPreferredAllocationRequest+")},
    "ContainerPreferredAllocationResponse": {"deviceIDs": (1, "string+")},
    "PreferredAllocationResponse": {"container_responses": (1, "ContainerPreferredAllocationResponse+")},
    "ContainerAllocateRequest": {"devices_ids": (1, "string+")},
    "AllocateRequest": {"container_requests": (1, "ContainerAllocateRequest+")},
    "Entry": {"key": (1, "string"), "value": (2, "string")},
    "Mount": {"container_path": (1, "string"), "host_path": (2, "string"), "read_only": (3, "bool")},
    "CDIDevice": {"name": (1, "string")},
    "ContainerAllocateResponse": {"envs": (1, "Entry+"), "mounts": (2, "Mount+"), "cdi_devices": (5, "CDIDevice+")},
    "AllocateResponse": {"container_responses": (1, "ContainerAllocateResponse+")},
    "PreStartContainerRequest": {"devices_ids": (1, "string+")},
    "PreStartContainerResponse": {},
}


def _read_descriptors():
    with open(os.environ["GS_PLUGIN_DESCRIPTORS"], "rb") as file:
        return descriptor_pb2.FileDescriptorSet.FromString(file.read())


DESCRIPTORS = _read_descriptors()


def _make_classes():
    pool = descriptor_pool.DescriptorPool()
    for file in DESCRIPTORS.file:
        pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}")) for name in FIELDS}


_classes = _make_classes()


def new(name, **fields):
    return _classes[name](**fields)


def parser(name):
    return _classes[name].FromString


def fields_of(descriptor):
    """As FIELDS has them."""
    kinds = {value: name.removeprefix("TYPE_").lower() for name, value in descriptor_pb2.FieldDescriptorProto.Type.items()}
    fields = {}
    for field in descriptor.field:
        kind = field.type_name.removeprefix(".v1beta1.") or kinds[field.type]
        repeated = field.label == descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        fields[field.name] = (field.number, kind + "+" if repeated else kind)
    return fields
