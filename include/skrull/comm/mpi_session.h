#pragma once
// MPI from start to end of the program, and which of this node's cores a rank computes on.

#include <memory>
#include <string>

#include "skrull/comm/communicator.h"

namespace skrull {

/// Starts MPI (MPI_THREAD_MULTIPLE) when the program was launched by mpirun or srun with PMI; stays a single rank
/// otherwise. One per program. The destructor finalises MPI. Throws RunFailure when a launcher's environment announces
/// several ranks but MPI came up alone, naming srun's --mpi option.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  ///< among the ranks of this node (MPI_Comm_split_type SHARED)
  int local_size() const { return local_size_; }

  /// All ranks; self communicator when there is one rank.
  std::unique_ptr<Communicator> world() const;

  /// Ends all ranks at once with this exit code; does not return. For a failure that the other ranks cannot know of.
  [[noreturn]] void abort(int exit_code) const;

 private:
  bool started_ = false;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
};

/// mpirun -np 1|2 binds a rank to one core: this gives local rank i of n its even share of all cores the launcher may
/// use (whole cores; when there are fewer cores than ranks they are shared round-robin). Call before any thread starts.
/// Leaves everything as it is when the node manager (Slurm) bound the task on purpose. Returns the number of threads to
/// compute with and says what was done.
struct CpuShare {
  int threads = 1;
  std::string description;
};
CpuShare spread_over_cores(int local_rank, int local_size);

}  // namespace skrull
