#include "simt/stand_in/machine.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

namespace skrull::simt {
namespace {

void set_fault(Machine& machine, const std::string& key, const std::string& value) {
  const auto number = [&] { return std::atoll(value.c_str()); };
  const std::map<std::string, std::function<void()>> faults = {
      {"driver", [&] { machine.driver_version = static_cast<int>(number()); }},
      {"error", [&] { machine.error = static_cast<cudaError_t>(number()); }},
      {"name", [&] { machine.gpu_name = value; }},
      {"capability", [&] { machine.capability = static_cast<int>(number()); }},
      {"mode", [&] { machine.compute_mode = static_cast<int>(number()); }},
      {"busy", [&] { machine.busy = number() != 0; }},
      {"occupied_mib", [&] { machine.occupied_bytes = static_cast<std::size_t>(number()) << 20; }},
      {"links", [&] { machine.linked = number() != 0; }},
      {"broken_step", [&] { machine.broken_step = number(); }},
      {"nccl_error", [&] { machine.nccl_error = number(); }},
      {"nccl_hang", [&] { machine.nccl_hang = number(); }},
      {"nccl_exit", [&] { machine.nccl_exit = number(); }},
      {"nccl_stop", [&] { machine.nccl_stop = number(); }},
  };
  const auto fault = faults.find(key);
  if (fault == faults.end()) {
    std::fprintf(stderr, "SKRULL_SIMT_FAULTS: there is no '%s'\n", key.c_str());
    std::abort();
  }
  fault->second();
}

Machine read_environment() {
  Machine machine;
  if (const char* number = std::getenv("SKRULL_SIMT_GPUS")) machine.gpus = std::atoi(number);
  if (const char* mib = std::getenv("SKRULL_SIMT_DEVICE_MIB")) {
    machine.device_bytes = std::strtoull(mib, nullptr, 10) << 20;
  }
  const char* text = std::getenv("SKRULL_SIMT_FAULTS");
  std::istringstream faults(text != nullptr ? text : "");
  for (std::string fault; std::getline(faults, fault, ';');) {
    const std::size_t equals = fault.find('=');
    set_fault(machine, fault.substr(0, equals), equals == std::string::npos ? "" : fault.substr(equals + 1));
  }
  if (machine.driver_version < 13000) machine.error = cudaErrorInsufficientDriver;
  return machine;
}

}  // namespace

const Machine& machine() {
  static const Machine machine = read_environment();
  return machine;
}

}  // namespace skrull::simt
