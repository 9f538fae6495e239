#include "simt/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>

namespace skrull::simt {
namespace {

// Kernels need little; sanitizers put red zones between everything.
constexpr std::size_t stack_bytes = (address_sanitizer ? 256 : 64) << 10;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t stride() {
  return stack_bytes + page_bytes();
}

Stack stack_of_this_thread() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) throw std::runtime_error("the thread's stack is unknown");
  Stack stack;
  pthread_attr_getstack(&attributes, &stack.bottom, &stack.bytes);
  pthread_attr_destroy(&attributes);
  return stack;
}

}  // namespace

StackSlab::StackSlab(std::size_t count) : count_(count) {
  void* memory = mmap(nullptr, count * stride(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  for (std::size_t i = 0; i < count; ++i) mprotect(memory_ + i * stride(), page_bytes(), PROT_NONE);
}

StackSlab::~StackSlab() {
  munmap(memory_, count_ * stride());
}

Stack StackSlab::operator[](std::size_t i) const {
  return {memory_ + i * stride() + page_bytes(), stack_bytes};
}

void Fiber::adopt() {
  thread_local const Stack stack = stack_of_this_thread();
  stack_ = stack;
  adopt_fiber(state_);
}

void Fiber::switch_between(Fiber& from, Fiber& to) {
  before_switch(&from.state_, to.state_, to.stack_.bottom, to.stack_.bytes);
  switch_context(from.context_, to.context_);
  after_switch(from.state_);
}

void Fiber::leave_to(Fiber& from, Fiber& to) {
  before_switch(nullptr, to.state_, to.stack_.bottom, to.stack_.bytes);
  switch_context(from.context_, to.context_);
  std::abort();
}

#if defined(__x86_64__)

// Saves the registers that a call must preserve, exchanges the stacks, and continues there: a few nanoseconds, where
// swapcontext() makes two system calls.
extern "C" void skrull_simt_switch(void** save, void* load);
asm(R"(.text
.globl skrull_simt_switch
.hidden skrull_simt_switch
.type skrull_simt_switch,@function
skrull_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size skrull_simt_switch,.-skrull_simt_switch
)");

void Fiber::switch_context(Context& from, Context& to) {
  skrull_simt_switch(&from, to);
}

void Fiber::start(Stack stack, void (*entry)()) {
  stack_ = stack;
  create_fiber(state_, stack.bottom, stack.bytes);
  constexpr int saved_registers = 6;
  void** top = reinterpret_cast<void**>(static_cast<std::byte*>(stack.bottom) + stack.bytes);
  *--top = nullptr;  // where a return address would be: keeps the alignment that functions expect
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < saved_registers; ++i) *--top = nullptr;
  context_ = top;
}

#else

void Fiber::switch_context(Context& from, Context& to) {
  swapcontext(&from, &to);
}

void Fiber::start(Stack stack, void (*entry)()) {
  stack_ = stack;
  create_fiber(state_, stack.bottom, stack.bytes);
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack.bottom;
  context_.uc_stack.ss_size = stack.bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}

#endif

}  // namespace skrull::simt
