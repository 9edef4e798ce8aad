// The description of a kernel that Python passes to the op (library.py: KernelDescription). interface.def has its fields.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_

#include <cstdint>

extern "C" {

struct StitchfleetKernel {
#define KERNEL_FIELD(type, name) type name;
#include "op/interface.def"
};

}  // extern "C"

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_
