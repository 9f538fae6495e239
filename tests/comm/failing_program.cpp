// A program that fails in the way its first argument says, with main() as MpiSession documents it.
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/comm/mpi_session.h"
#include "skrull/core/error.h"
#include "skrull/device/device.h"

using namespace skrull;

namespace {

void run(const MpiSession& session, const std::string& mode) {
  const auto device = make_cpu_device(1);
  Stream& stream = device->communication_stream();
  const auto world = session.world();
  ControlChannel control(*world, stream);
  const bool last = session.rank() == session.size() - 1;
  std::vector<float> values(1 << 20, 1.0F);
  const TensorView buffer(values.data(), DType::float32, 1, static_cast<std::int64_t>(values.size()));
  world->all_reduce_sum(stream, buffer);
  stream.synchronize();
  if (mode == "together-invalid")
    control.run_together([&] {
      if (last) throw_invalid_input("row 7 is wrong");
    });
  if (mode == "together-failed")
    control.run_together([&] {
      if (last) throw_run_failure("disk full");
    });
  if (mode == "alone-invalid" && last) throw_invalid_input("row 7 is wrong");
  if (mode == "alone-failed" && last) throw_run_failure("disk full");
  if (mode == "alone-in-flight" && last) {
    static char memory[64];
    const Transfer never = {Transfer::Kind::receive, 0, memory, sizeof(memory)};
    world->exchange(stream, {&never, 1});
    throw_run_failure("disk full");
  }
  if (mode == "killed" && last) std::raise(SIGKILL);
  if (mode == "exits" && last) std::_Exit(1);
  world->all_reduce_sum(stream, buffer);  // where the others wait for the rank that is gone
  stream.synchronize();
}

int fail(const MpiSession& session, const std::exception& error, ExitCode code) {
  if (failed_together(error)) {
    if (session.rank() == 0) std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(code);
  }
  std::fprintf(stderr, "[rank %d] error: %s\n", session.rank(), error.what());
  session.abort(static_cast<int>(code));
}

int start(int argc, char** argv) {
  const MpiSession session(argc, argv);
  try {
    run(session, argc > 1 ? argv[1] : "");
    if (session.rank() == 0) std::printf("done with %d\n", session.size());
    return 0;
  } catch (const Error& error) {
    return fail(session, error, error.exit_code());
  } catch (const std::exception& error) {
    return fail(session, error, ExitCode::run_failed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return start(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
