#include "device/gpu_peak.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace skrull {
namespace {

/// Of a multiprocessor, per clock: from the white papers of the architectures.
struct ClockRate {
  int capability;  ///< from which on
  double bfloat16, float32;
};
constexpr std::array clock_rates = {ClockRate{80, 2048, 128}, ClockRate{86, 1024, 256}, ClockRate{90, 4096, 256},
                                    ClockRate{100, 8192, 256}, ClockRate{120, 1024, 256}};

/// Clocks that data sheets count with where it is not the highest. The first name that a GPU's contains is its.
struct DataSheetClock {
  std::string_view name;
  double hertz;
};
constexpr std::array data_sheet_clocks = {DataSheetClock{"H100 PCIe", 1.620e9}, DataSheetClock{"H100 NVL", 1.545e9},
                                          DataSheetClock{"H200 NVL", 1.545e9},  DataSheetClock{"A100", 1.410e9},
                                          DataSheetClock{"H100", 1.830e9},      DataSheetClock{"H200", 1.830e9},
                                          DataSheetClock{"H800", 1.830e9},      DataSheetClock{"B200", 1.856e9}};

double clock_of(const CudaGpu& gpu) {
  const auto sheet = std::find_if(data_sheet_clocks.begin(), data_sheet_clocks.end(), [&](const DataSheetClock& one) {
    return gpu.name.find(one.name) != std::string::npos;
  });
  return sheet != data_sheet_clocks.end() ? sheet->hertz : gpu.highest_clock;
}

}  // namespace

double nominal_peak_flops(const CudaGpu& gpu, DType dtype) {
  ClockRate rate = clock_rates.front();
  for (const ClockRate& one : clock_rates) {
    if (gpu.capability() >= one.capability) rate = one;
  }
  // Tensor cores of GeForce cards add in fp32 at half their rate.
  if (gpu.name.find("GeForce") != std::string::npos) rate.bfloat16 /= 2;
  return gpu.multiprocessors * clock_of(gpu) * (dtype == DType::bfloat16 ? rate.bfloat16 : rate.float32);
}

}  // namespace skrull
