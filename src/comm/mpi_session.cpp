#include "skrull/comm/mpi_session.h"

#include <mpi.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "mpi_group.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

int number_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::atoi(value);  // NOLINT(cert-err34-c): anything odd counts as absent
}

bool is_set(const char* name) {
  return std::getenv(name) != nullptr;
}

/// A launcher that MPI can talk to started this process.
bool launched_for_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    if (is_set(name)) return true;
  }
  return false;
}

/// How many ranks the launcher's environment speaks of; 0 when it says nothing. mpirun comes first: inside a Slurm job
/// its ranks see Slurm's variables too. A batch script's own process is one, however many tasks the job asked for.
int announced_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (is_set(name)) return number_in_environment(name);
  }
  const char* kind = std::getenv("ENVIRONMENT");
  const bool batch_script = kind != nullptr && std::string_view(kind) == "BATCH";
  return is_set("SLURM_PROCID") && !batch_script ? number_in_environment("SLURM_NTASKS") : 0;
}

[[noreturn]] void throw_alone(int announced) {
  throw_run_failure(
      "the launcher announces {} ranks, but MPI came up with this one alone. Under Slurm start with `srun --mpi=pmix` "
      "or `srun --mpi=pmi2` (`srun --mpi=list` shows what there is), or use mpirun of the MPI this program was built "
      "with",
      announced);
}

/// Containers often forbid the system call by which Open MPI moves large messages within a node, and it finds out only
/// in the middle of one: then choose copying through shared memory.
void avoid_forbidden_single_copy() {
  char source = 1;
  char target = 0;
  const iovec local = {&target, 1};
  const iovec remote = {&source, 1};
  if (::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1) return;
  constexpr int keep_what_is_set = 0;
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", keep_what_is_set);  // Open MPI 4
  ::setenv("OMPI_MCA_smsc", "^cma", keep_what_is_set);                             // Open MPI 5
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) : exceptions_at_start_(std::uncaught_exceptions()) {
  const int announced = announced_ranks();
  if (!launched_for_mpi()) {
    if (announced > 1) throw_alone(announced);
    return;
  }
  avoid_forbidden_single_copy();
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  if ((size_ == 1 && announced > 1) || provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    if (size_ == 1 && announced > 1) throw_alone(announced);
    throw_run_failure("this MPI library was built without MPI_THREAD_MULTIPLE, which the communication thread needs");
  }
  started_ = true;
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  MPI_Comm_rank(node, &local_rank_);
  MPI_Comm_size(node, &local_size_);
  MPI_Comm_free(&node);
}

MpiSession::~MpiSession() {
  if (started_ && std::uncaught_exceptions() <= exceptions_at_start_) MPI_Finalize();
}

std::unique_ptr<Communicator> MpiSession::world(const MessageLimits& limits) const {
  if (size_ == 1) return make_self_communicator();
  MPI_Comm all = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all), "MPI_Comm_dup");
  return make_mpi_communicator(std::make_shared<MpiGroup>(all, limits));
}

void MpiSession::abort(int exit_code) const {
  std::fflush(nullptr);
  if (started_) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

MachinePart mpi_part() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string version(text.data(), static_cast<std::size_t>(length));
  MachinePart part{"MPI", PartState::ok, version.substr(0, version.find_first_of(",\n")), ""};
  int started = 0;
  MPI_Initialized(&started);
  if (started == 0) return part;
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level == MPI_THREAD_MULTIPLE) {
    part.found += ", any thread may call";
  } else {
    part.state = PartState::broken;
    part.found += ", without MPI_THREAD_MULTIPLE";
    part.advice = "build MPI with support for threads";
  }
  return part;
}

}  // namespace skrull
