#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "skrull/comm/communicator.h"
#include "support/mpi.h"
#include "training_fixture.h"

namespace skrull::test {

/// A folder that all ranks use, rank 0's.
class SharedFixture {
 public:
  SharedFixture() : world_(mpi_session().world()), control_(*world_) {
    folder_ = control_.broadcast((fixture_ / "").string());
    control_.barrier();
  }
  ~SharedFixture() { control_.barrier(); }
  SharedFixture(const SharedFixture&) = delete;
  SharedFixture& operator=(const SharedFixture&) = delete;

  bool is_root() const { return control_.rank() == 0; }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  TrainingFixture& own() { return fixture_; }

  TrainSummary train(const std::string& output, const Overrides& overrides) {
    TrainConfig config = fixture_.config(output, overrides);
    config.output_dir = folder_ / output;
    const TrainSummary summary = skrull::train(config, mpi_session());
    control_.barrier();
    return summary;
  }

 private:
  TrainingFixture fixture_;
  std::unique_ptr<Communicator> world_;
  ControlChannel control_;
  std::filesystem::path folder_;
};

}  // namespace skrull::test
