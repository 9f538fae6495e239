// In the place of the driver's library, for cuDNN to make plans where there is no GPU: there is no device, and every
// kernel that is handed over for one is taken. Without it cuDNN makes none, as it loads a plan's kernels when it makes
// it.

namespace {

constexpr int success = 0;
constexpr int no_device = 100;

}  // namespace

extern "C" {

int cuLibraryLoadData(void** library) {
  static char loaded;
  *library = &loaded;
  return success;
}
int cuLibraryGetKernel(void** kernel) {
  static char found;
  *kernel = &found;
  return success;
}
int cuLibraryUnload() {
  return success;
}
int cuKernelSetAttribute() {
  return success;
}
int cuGetErrorString(int /*error*/, const char** text) {
  *text = "there is no GPU";
  return success;
}

// What cuDNN wants to find, and uses on a GPU alone.
#define SKRULL_NO_DEVICE(name) \
  int name() {                 \
    return no_device;          \
  }
SKRULL_NO_DEVICE(cuInit)
SKRULL_NO_DEVICE(cuDriverGetVersion)
SKRULL_NO_DEVICE(cuGetErrorName)
SKRULL_NO_DEVICE(cuDeviceGet)
SKRULL_NO_DEVICE(cuDeviceGetCount)
SKRULL_NO_DEVICE(cuCtxGetCurrent)
SKRULL_NO_DEVICE(cuCtxGetLimit)
SKRULL_NO_DEVICE(cuCtxPopCurrent)
SKRULL_NO_DEVICE(cuCtxPushCurrent)
SKRULL_NO_DEVICE(cuStreamGetCtx)
SKRULL_NO_DEVICE(cuLinkCreate)
SKRULL_NO_DEVICE(cuLinkAddData)
SKRULL_NO_DEVICE(cuLinkComplete)
SKRULL_NO_DEVICE(cuLinkDestroy)
SKRULL_NO_DEVICE(cuLibraryLoadFromFile)
SKRULL_NO_DEVICE(cuKernelGetAttribute)
SKRULL_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
SKRULL_NO_DEVICE(cuLaunchKernel)
SKRULL_NO_DEVICE(cuLaunchKernelEx)
SKRULL_NO_DEVICE(cuLaunchCooperativeKernel)
#undef SKRULL_NO_DEVICE

}  // extern "C"
