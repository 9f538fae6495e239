// skrull doctor on machines with several GPUs, in good order and not.
#include <map>
#include <string>

#include "skrull/core/json.h"
#include "support/catch.h"
#include "support/support.h"
#include "train/training_fixture.h"

using namespace skrull;
using test::contains;

namespace {

struct Report {
  std::string text;
  std::map<std::string, Json> parts;  ///< by name
};

Report examine(int gpus, const std::string& faults) {
  const test::CommandResult result =
      test::run_command({"env", "SKRULL_SIMT_GPUS=" + std::to_string(gpus), "SKRULL_SIMT_FAULTS=" + faults,
                         std::string(SKRULL_BINARY_DIR) + "/tests/skrull_simt", "doctor", "--json"});
  Report report{result.errors, {}};
  const Json answer = test::result_of(result);
  for (const Json& part : answer.at("parts")) {
    report.parts[part.at("part")] = part;
    CHECK((part.at("state") == "ok") == part.at("advice").get<std::string>().empty());
  }
  return report;
}

}  // namespace

TEST_CASE("doctor: GPUs with memory, ECC and place, and the links of two") {
  const Report report = examine(2, "");
  INFO(report.text);
  CHECK(report.parts.at("NVIDIA driver").at("state") == "ok");
  CHECK(report.parts.at("GPU 1").at("found") ==
        "CPU stand-in, compute capability 8.0, 4 multiprocessors, 1.0 GiB, ECC on, 0000:02:00.0");
  CHECK(contains(report.text,
                 "GPU links      ok       2 of 2 ways from GPU to GPU are direct; the driver's rank of "
                 "each, 0 is the fastest\n"
                 "links of GPU 0 ok                 -  0+atomics\n"
                 "links of GPU 1 ok         0+atomics          -\n"));
}

TEST_CASE("doctor: two GPUs without a link, and what to do") {
  const Report report = examine(2, "links=0");
  INFO(report.text);
  const Json& links = report.parts.at("GPU links");
  CHECK(links.at("state") == "missing");
  CHECK(links.at("found") == "0 of 2 ways from GPU to GPU are direct");
  for (const char* words : {"through host memory", "nvidia-smi topo -p2p r", "IOMMU", "ACS", "NCCL_P2P_DISABLE=1"}) {
    CHECK(contains(links.at("advice").get<std::string>(), words));
  }
  CHECK(report.parts.count("links of GPU 0") == 0);
}

TEST_CASE("doctor: one GPU has no links") {
  CHECK(examine(1, "").parts.count("GPU links") == 0);
}

TEST_CASE("doctor: what is wrong with a GPU stands at the GPU, with the driver at the driver") {
  const Report old = examine(2, "name=Tesla T4;capability=75");
  INFO(old.text);
  CHECK(old.parts.at("NVIDIA driver").at("state") == "ok");
  CHECK(old.parts.at("GPU 1").at("state") == "broken");
  CHECK(contains(old.parts.at("GPU 1").at("advice").get<std::string>(),
                 "at least 8.0 is needed: hide it by CUDA_VISIBLE"));
  CHECK(contains(examine(1, "mode=3").parts.at("GPU 0").at("found").get<std::string>(),
                 "exclusive: for one rank at a time"));
  CHECK(examine(1, "mode=2").parts.at("GPU 0").at("state") == "broken");
  const Report none = examine(1, "driver=12020");
  CHECK(none.parts.at("NVIDIA driver").at("state") == "broken");
  CHECK(contains(none.parts.at("NVIDIA driver").at("found").get<std::string>(), "for CUDA 12.2"));
  CHECK(examine(1, "driver=0").parts.at("NVIDIA driver").at("state") == "missing");
}
