#pragma once
// MPI from start to end of the program, and which of this node's cores a rank computes on.

#include <cstdint>
#include <memory>
#include <string>

#include "skrull/comm/communicator.h"
#include "skrull/device/machine_part.h"

namespace skrull {

/// How the MPI communicator cuts its work. The defaults serve; tests make them small.
struct MessageLimits {
  std::int64_t message_bytes = std::int64_t{1} << 20;    ///< longer messages travel in pieces; at most 1 GiB
  std::int64_t scratch_bytes = std::int64_t{16} << 20;   ///< per communicator, for contributions of other ranks
  std::int64_t gathered_bytes = std::int64_t{64} << 10;  ///< an all-reduce up to this goes to everyone in one trip
  double timeout_seconds = 1800;                         ///< without any message, then an operation fails; 0: never
};

/// Starts MPI (MPI_THREAD_MULTIPLE) when the program was launched by mpirun or srun with PMI; stays a single rank
/// otherwise. One per program. Throws RunFailure when a launcher's environment announces several ranks but MPI came up
/// alone, naming srun's --mpi option.
///
/// main() makes it outside its try block, so that the destructor, which finalises MPI together with all other ranks,
/// runs on the way out alone:
///
///     MpiSession session(argc, argv);
///     try {
///       return run(session, ...);
///     } catch (const Error& error) {
///       if (failed_together(error)) return code;   // every rank is here: rank 0 reports, all leave as usual
///       report; session.abort(code);               // the others don't know: end them too
///     }
///
/// Should an exception pass through the destructor all the same, it leaves MPI unfinalised and waits for nobody.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  /// This process as the only rank, without MPI, also within a job of several ranks.
  static MpiSession alone() { return {}; }
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  ///< among the ranks of this node (MPI_Comm_split_type SHARED)
  int local_size() const { return local_size_; }

  /// All ranks, over host memory; self communicator when there is one rank. Collective. Make communicators after the
  /// device whose streams they are queued on: when an exception of one rank destroys a communicator, operations that
  /// still wait for other ranks give up, and the device's communication thread can end.
  std::unique_ptr<Communicator> world(const MessageLimits& limits = {}) const;

  /// Ends all ranks at once with this exit code, which becomes mpirun's; does not return. For a failure that the other
  /// ranks cannot know of.
  [[noreturn]] void abort(int exit_code) const;

 private:
  MpiSession() = default;

  bool started_ = false;
  int exceptions_at_start_ = 0;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
};

/// The MPI library and, in a job that mpirun or srun started, what it allows threads to do.
MachinePart mpi_part();

struct CpuShare {
  int threads = 1;  ///< to compute with: whole cores, at most OMP_NUM_THREADS where that is set
  std::string description;
};

/// Open MPI binds a rank of `mpirun -np 1|2` to one core: this gives local rank i of n its even, contiguous share of
/// all cores the launcher may use (whole cores with their hardware threads; when there are fewer cores than ranks they
/// are shared round-robin). Call before any thread starts. Leaves the binding as it is when Slurm bound the task.
/// Says what was done; where the system refuses, that is in the description and the old binding stays.
CpuShare spread_over_cores(int local_rank, int local_size);

}  // namespace skrull
