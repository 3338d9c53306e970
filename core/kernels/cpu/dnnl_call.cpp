#include "core/kernels/cpu/dnnl_call.h"

#include <cstdlib>

#include "core/kernels/cpu/host.h"

extern "C" __attribute__((weak)) void omp_set_num_threads(int);

namespace lockstep::cpu {
namespace {

#if DNNL_VERSION_MAJOR >= 3
constexpr auto kNoLimit = dnnl::cpu_isa::isa_default;
#else
constexpr auto kNoLimit = dnnl::cpu_isa::all;
#endif

dnnl::engine make_engine() {
  if (const char* wanted = std::getenv("LOCKSTEP_ISA"); wanted != nullptr && *wanted != 0) {
    const Isa set = isa();
    dnnl::set_max_cpu_isa(set == Isa::baseline ? dnnl::cpu_isa::sse41
                          : set == Isa::avx2   ? dnnl::cpu_isa::avx2
                                               : kNoLimit);
  }
  return {dnnl::engine::kind::cpu, 0};
}

// A setting of the calling thread.
bool tell_openmp() {
  if (omp_set_num_threads) omp_set_num_threads(1);
  return true;
}

}  // namespace

const dnnl::engine& dnnl_engine() {
  static const dnnl::engine cpu = make_engine();
  return cpu;
}

void keep_dnnl_on_this_thread() {
  thread_local const bool told = tell_openmp();
  (void)told;
}

DnnlCall::DnnlCall(dnnl::primitive primitive, const dnnl::memory::desc& workspace)
    : stream_(dnnl_engine()),
      primitive_(std::move(primitive)),
      workspace_(static_cast<int64_t>(workspace.get_size())) {
  add(DNNL_ARG_SCRATCHPAD, workspace);
}

void DnnlCall::add(int argument, const dnnl::memory::desc& desc) {
  memories_.push_back(dnnl::memory(desc, dnnl_engine(), nullptr));
  arguments_.push_back({argument, memories_.back().get()});
}

void DnnlCall::set(size_t argument, const void* data) {
  dnnl::error::wrap_c_api(
      dnnl_memory_set_data_handle(arguments_[argument].memory, const_cast<void*>(data)), "data");
}

void DnnlCall::operator()(std::initializer_list<const void*> data) {
  const Scratch<std::byte> workspace(workspace_);
  set(0, workspace.data());
  size_t argument = 1;
  for (const void* one : data) set(argument++, one);
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
                             arguments_.data()),
      "execute");
  stream_.wait();
}

}  // namespace lockstep::cpu
