#include "core/kernels/cpu/dnnl_product.h"

#include <cstdlib>
#include <dnnl.hpp>
#include <unordered_map>

#include "core/kernels/cpu/host.h"

// oneDNN may be built on OpenMP. Its threads are not used: see Note [A team of our own].
extern "C" __attribute__((weak)) void omp_set_num_threads(int);

namespace lockstep::cpu {
namespace {

using dnnl::matmul;
using dnnl::memory;

#if DNNL_VERSION_MAJOR >= 3
constexpr auto kNoLimit = dnnl::cpu_isa::isa_default;
#else
constexpr auto kNoLimit = dnnl::cpu_isa::all;
#endif

// oneDNN takes the best instruction set there is; where LOCKSTEP_ISA names another, it follows.
dnnl::engine make_engine() {
  if (const char* wanted = std::getenv("LOCKSTEP_ISA"); wanted != nullptr && *wanted != 0) {
    const Isa set = isa();
    dnnl::set_max_cpu_isa(set == Isa::baseline ? dnnl::cpu_isa::sse41
                          : set == Isa::avx2   ? dnnl::cpu_isa::avx2
                                               : kNoLimit);
  }
  return {dnnl::engine::kind::cpu, 0};
}
const dnnl::engine& engine() {
  static const dnnl::engine cpu = make_engine();
  return cpu;
}

memory::desc describe(const ProductKey& key, int64_t rows, int64_t columns, ProductKey::Steps steps,
                      DType dtype) {
  const auto type = dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  if (key.batch == 1) return {{rows, columns}, type, {steps.row, steps.column}};
  return {{key.batch, rows, columns}, type, {steps.batch, steps.row, steps.column}};
}

matmul::primitive_desc plan(const ProductKey& key) {
  const memory::desc a = describe(key, key.m, key.k, key.a, DType::bf16),
                     b = describe(key, key.k, key.n, key.b, DType::bf16),
                     c = describe(key, key.m, key.n, key.c, key.out);
  // As many dimensions as the product has, all but the last of extent 1.
  memory::desc bias;
  if (key.bias && key.batch == 1)
    bias = {{1, key.n}, memory::data_type::f32, memory::dims{key.n, 1}};
  if (key.bias && key.batch > 1)
    bias = {{1, 1, key.n}, memory::data_type::f32, memory::dims{key.n, key.n, 1}};
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return key.bias ? matmul::primitive_desc(engine(), a, b, bias, c, attributes)
                  : matmul::primitive_desc(engine(), a, b, c, attributes);
#else
  return {key.bias ? matmul::desc(a, b, bias, c) : matmul::desc(a, b, c), attributes, engine()};
#endif
}

// A primitive with the memory objects of its arguments, whose pointers change from call to call.
class Product {
 public:
  explicit Product(const ProductKey& key) : stream_(engine()) {
    const matmul::primitive_desc made = plan(key);
    primitive_ = matmul(made);
    workspace_ = static_cast<int64_t>(made.scratchpad_desc().get_size());
    add(DNNL_ARG_SRC, made.src_desc());
    add(DNNL_ARG_WEIGHTS, made.weights_desc());
    add(DNNL_ARG_DST, made.dst_desc());
    add(DNNL_ARG_SCRATCHPAD, made.scratchpad_desc());
    if (key.bias) add(DNNL_ARG_BIAS, made.bias_desc());
  }

  void operator()(void* c, const void* a, const void* b, const float* bias) {
    const Scratch<std::byte> workspace(workspace_);
    const void* data[] = {a, b, c, workspace.data(), bias};
    for (size_t i = 0; i < arguments_.size(); ++i)
      dnnl::error::wrap_c_api(
          dnnl_memory_set_data_handle(arguments_[i].memory, const_cast<void*>(data[i])), "data");
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
                               arguments_.data()),
        "execute");
    stream_.wait();
  }

 private:
  void add(int argument, const memory::desc& desc) {
    memories_.push_back(memory(desc, engine(), nullptr));
    arguments_.push_back({argument, memories_.back().get()});
  }

  dnnl::stream stream_;
  matmul primitive_;
  int64_t workspace_ = 0;
  std::vector<memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

struct Hash {
  size_t operator()(const ProductKey& key) const {
    size_t hash = 0;
    for (int64_t part :
         {key.batch, key.m, key.n, key.k, key.a.batch, key.a.row, key.a.column, key.b.batch,
          key.b.row, key.b.column, key.c.row, int64_t{key.accumulate}, int64_t{key.bias},
          static_cast<int64_t>(DType::bf16), static_cast<int64_t>(key.out)})
      hash = (hash ^ static_cast<size_t>(part)) * 0x9E3779B97F4A7C15u + (hash >> 29);
    return hash;
  }
};

constexpr size_t kMostProducts = 1024;  // shapes that keep changing (sampling) must not pile up

// A setting of the calling thread, made before its first primitive.
bool tell_openmp() {
  if (omp_set_num_threads) omp_set_num_threads(1);
  return true;
}

Product& product_for(const ProductKey& key) {
  thread_local const bool told = tell_openmp();
  (void)told;
  thread_local std::unordered_map<ProductKey, Product, Hash> products;
  const auto found = products.find(key);
  if (found != products.end()) return found->second;
  if (products.size() >= kMostProducts) products.clear();
  return products.try_emplace(key, key).first->second;
}

// What oneDNN found, under the limit of LOCKSTEP_ISA.
bool has(dnnl::cpu_isa wanted) {
  engine();
  const auto found = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (found & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

bool made_by_amd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

Bf16Products choose_bf16_products() {
  const char* set = std::getenv("LOCKSTEP_BF16");
  const std::string_view wanted = set == nullptr ? "" : set;
  check(wanted.empty() || wanted == "native" || wanted == "widened",
        "[core.matmul] LOCKSTEP_BF16; expected native or widened, got {}", wanted);
  check(wanted != "native" || has_native_bf16(),
        "[core.matmul] LOCKSTEP_BF16=native; this processor does not multiply bf16");
  if (!wanted.empty()) return wanted == "native" ? Bf16Products::native : Bf16Products::widened;
  const bool faster = has(dnnl::cpu_isa::avx512_core_amx) || (has_native_bf16() && made_by_amd());
  return faster ? Bf16Products::native : Bf16Products::widened;
}

Bf16Products& chosen_bf16_products() {
  static Bf16Products way = choose_bf16_products();
  return way;
}

}  // namespace

// Where tests switch to another instruction set, oneDNN does not follow, but this does.
Bf16Products bf16_products() {
  return isa() == Isa::avx512 ? chosen_bf16_products() : Bf16Products::widened;
}

bool has_native_bf16() { return has(dnnl::cpu_isa::avx512_core_bf16); }

void use_bf16_products(Bf16Products way) {
  check(way == Bf16Products::widened || has_native_bf16(),
        "[core.matmul] this processor does not multiply bf16");
  chosen_bf16_products() = way;
}

void product(const ProductKey& key, void* c, const void* a, const void* b, const float* bias) {
  try {
    product_for(key)(c, a, b, bias);
  } catch (const dnnl::error& e) {
    throw SystemError(Fault::device, fmt::format("[kernel.matmul] oneDNN: {} (status {})", e.what(),
                                                 static_cast<int>(e.status)));
  }
}

}  // namespace lockstep::cpu
