#include "core/kernels/cpu/dnnl_product.h"

#include "core/kernels/cpu/dnnl_call.h"
#include "core/kernels/cpu/host.h"

#include <cstdlib>
#include <unordered_map>

namespace lockstep::cpu {
namespace {

using dnnl::matmul;
using dnnl::memory;

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
  return key.bias ? matmul::primitive_desc(dnnl_engine(), a, b, bias, c, attributes)
                  : matmul::primitive_desc(dnnl_engine(), a, b, c, attributes);
#else
  return {key.bias ? matmul::desc(a, b, bias, c) : matmul::desc(a, b, c), attributes,
          dnnl_engine()};
#endif
}

DnnlCall make_product(const ProductKey& key) {
  const matmul::primitive_desc made = plan(key);
  DnnlCall call(matmul(made), made.scratchpad_desc());
  call.add(DNNL_ARG_SRC, made.src_desc());
  call.add(DNNL_ARG_WEIGHTS, made.weights_desc());
  call.add(DNNL_ARG_DST, made.dst_desc());
  if (key.bias) call.add(DNNL_ARG_BIAS, made.bias_desc());
  return call;
}

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

DnnlCall& product_for(const ProductKey& key) {
  keep_dnnl_on_this_thread();
  thread_local std::unordered_map<ProductKey, DnnlCall, Hash> products;
  const auto found = products.find(key);
  if (found != products.end()) return found->second;
  if (products.size() >= kMostProducts) products.clear();
  return products.try_emplace(key, make_product(key)).first->second;
}

// What oneDNN found, under the limit of LOCKSTEP_ISA.
bool has(dnnl::cpu_isa wanted) {
  dnnl_engine();
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
    DnnlCall& call = product_for(key);
    key.bias ? call({a, b, c, bias}) : call({a, b, c});
  } catch (const dnnl::error& e) {
    throw SystemError(Fault::device, fmt::format("[kernel.matmul] oneDNN: {} (status {})", e.what(),
                                                 static_cast<int>(e.status)));
  }
}

}  // namespace lockstep::cpu
