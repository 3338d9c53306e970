#pragma once
#include <initializer_list>
#include <vector>

#include <dnnl.hpp>

/// What every use of oneDNN shares. For the files that call it; nobody else includes this.
namespace lockstep::cpu {

/// oneDNN takes the best instruction set there is; where LOCKSTEP_ISA names another, it follows.
const dnnl::engine& dnnl_engine();

/// oneDNN may be built on OpenMP, whose threads are not used (Note [A team of our own]): a thread
/// says so before it makes its first primitive.
void keep_dnnl_on_this_thread();

/// A primitive with the memory objects of its arguments, whose pointers change from call to call.
/// Its working memory is ours. Not for two threads at once.
class DnnlCall {
 public:
  DnnlCall() : stream_(dnnl_engine()) {}
  DnnlCall(dnnl::primitive primitive, const dnnl::memory::desc& workspace);
  /// The next argument; a call gives their pointers in the same order.
  void add(int argument, const dnnl::memory::desc& desc);
  explicit operator bool() const { return !arguments_.empty(); }
  /// dnnl::error where oneDNN refuses.
  void operator()(std::initializer_list<const void*> data);

 private:
  void set(size_t argument, const void* data);

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  int64_t workspace_ = 0;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

}  // namespace lockstep::cpu
