// What an exchange is made of, for Python, which carries it out over any process group: python/ranvier/_exchanges.py.
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <string>

#include "integrations/torch/errors.h"
#include "integrations/torch/tensors.h"
#include "ranvier/demo.h"
#include "ranvier/exchange.h"
#include "ranvier/low_rank.h"
#include "ranvier/normalized.h"
#include "ranvier/shared_grid.h"
#include "ranvier/shared_scale.h"

namespace ranvier::pytorch {
namespace {

struct PlanHandle : torch::CustomClassHolder {
  explicit PlanHandle(const std::string& spec) : plan(translating_errors([&] { return plan_exchange(spec); })) {}
  const ExchangePlan plan;
};

// A matrix of rows x columns as the product of two factors, each of which is a tensor of rank x rows or columns.
struct LowRankHandle : torch::CustomClassHolder {
  LowRankHandle(std::int64_t rows, std::int64_t columns, std::int64_t rank)
      : shape(low_rank_shape(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns),
                             static_cast<std::size_t>(rank))) {}

  std::int64_t rows() const { return static_cast<std::int64_t>(shape.rows); }
  std::int64_t columns() const { return static_cast<std::int64_t>(shape.columns); }
  std::int64_t rank() const { return static_cast<std::int64_t>(shape.rank); }

  float* matrix(const at::Tensor& values) const { return span_of<float>(values, rows() * columns(), "matrix").data(); }
  float* left(const at::Tensor& factor) const { return span_of<float>(factor, rows() * rank(), "left").data(); }
  float* right(const at::Tensor& factor) const { return span_of<float>(factor, columns() * rank(), "right").data(); }

  const MatrixShape shape;
};

struct GridHandle : torch::CustomClassHolder {
  GridHandle(std::int64_t bits, std::int64_t world)
      : grid(translating_errors([&] { return SharedGrid(static_cast<unsigned>(bits), static_cast<Rank>(world)); })) {}

  static std::int64_t blocks(std::int64_t count) {
    return (count + static_cast<std::int64_t>(SharedGrid::block) - 1) / static_cast<std::int64_t>(SharedGrid::block);
  }

  at::Tensor encode(const at::Tensor& values, const at::Tensor& norms) const {
    const auto input = span_of<float>(values, -1, "encode");
    at::Tensor codes = at::empty({static_cast<std::int64_t>(grid.bytes(input.size()))}, at::kByte);
    grid.encode(input, span_of<float>(norms, blocks(values.numel()), "norms"),
                span_of<std::uint8_t>(codes, -1, "codes"));
    return codes;
  }

  void decode(const at::Tensor& codes, const at::Tensor& norms, std::int64_t summed, const at::Tensor& out) const {
    const auto values = span_of<float>(out, -1, "decode");
    grid.decode(span_of<std::uint8_t>(codes, static_cast<std::int64_t>(grid.bytes(values.size())), "codes"),
                span_of<float>(norms, blocks(out.numel()), "norms"), static_cast<Rank>(summed), values);
  }

  const SharedGrid grid;
};

struct DemoHandle : torch::CustomClassHolder {
  DemoHandle(const ExchangePlan& plan, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns)
      : demo(plan.demo.value_or(DemoOptions{}), tensors_of(rows, columns)) {}

  static std::vector<Tensor> tensors_of(const std::vector<std::int64_t>& rows,
                                        const std::vector<std::int64_t>& columns) {
    TORCH_CHECK_VALUE(rows.size() == columns.size(), "demo: as many rows as columns have to be given");
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < rows.size(); ++i)
      tensors.push_back(
          {.id = i, .rows = static_cast<std::size_t>(rows[i]), .columns = static_cast<std::size_t>(columns[i])});
    return tensors;
  }
  static std::span<std::byte> bytes_of(const at::Tensor& code, std::int64_t size) {
    return std::as_writable_bytes(span_of<std::uint8_t>(code, size, "code"));
  }
  at::Tensor encode(const at::Tensor& values, const at::Tensor& momentum) const {
    at::Tensor code = at::empty({static_cast<std::int64_t>(demo.code_bytes())}, at::kByte);
    demo.encode(span_of<float>(values, -1, "encode"), span_of<float>(momentum, values.numel(), "momentum"),
                bytes_of(code, -1));
    return code;
  }
  bool decode(const at::Tensor& codes, const at::Tensor& values) const {
    return translating_errors([&] { return demo.decode(bytes_of(codes, -1), span_of<float>(values, -1, "decode")); });
  }
  void take_back(const at::Tensor& values, const at::Tensor& code, const at::Tensor& momentum) const {
    demo.take_back(span_of<float>(values, -1, "take_back"),
                   bytes_of(code, static_cast<std::int64_t>(demo.code_bytes())),
                   span_of<float>(momentum, values.numel(), "momentum"));
  }

  const Demo demo;
};

struct ScaleHandle : torch::CustomClassHolder {
  explicit ScaleHandle(std::int64_t world)
      : scale(translating_errors([&] { return SharedScale(static_cast<Rank>(world)); })) {}

  static std::int64_t blocks(std::int64_t count) {
    return (count + static_cast<std::int64_t>(SharedScale::block) - 1) / static_cast<std::int64_t>(SharedScale::block);
  }

  at::Tensor encode(const at::Tensor& values, const at::Tensor& largest) const {
    at::Tensor codes = at::empty({values.numel()}, at::kChar);
    scale.encode(span_of<float>(values, -1, "encode"), span_of<float>(largest, blocks(values.numel()), "largest"),
                 span_of<std::int8_t>(codes, -1, "codes"));
    return codes;
  }

  void decode(const at::Tensor& codes, const at::Tensor& largest, double share, const at::Tensor& out) const {
    scale.decode(span_of<std::int8_t>(codes, out.numel(), "codes"),
                 span_of<float>(largest, blocks(out.numel()), "largest"), static_cast<float>(share),
                 span_of<float>(out, -1, "decode"));
  }

  const SharedScale scale;
};

}  // namespace
}  // namespace ranvier::pytorch

TORCH_LIBRARY_FRAGMENT(ranvier, library) {
  using namespace ranvier::pytorch;
  // Before what gives it: torch looks types up where a method is defined.
  using DemoPtr = c10::intrusive_ptr<DemoHandle>;
  library.class_<DemoHandle>("Demo")
      .def("encode", &DemoHandle::encode)
      .def("decode", &DemoHandle::decode)
      .def("take_back", [](const DemoPtr& self, const at::Tensor& values, const at::Tensor& code,
                           const at::Tensor& momentum) { self->take_back(values, code, momentum); });

  using Plan = c10::intrusive_ptr<PlanHandle>;
  library.class_<PlanHandle>("ExchangePlan")
      .def(torch::init<std::string>())
      // The codec's spec, of the values or of the factors; empty where floats go as they are.
      .def("codec", [](const Plan& self) { return self->plan.codec ? std::string(self->plan.codec->spec()) : ""; })
      .def("rank",
           [](const Plan& self) {
             return self->plan.low_rank ? static_cast<std::int64_t>(self->plan.low_rank->rank) : std::int64_t{0};
           })
      .def("alternating", [](const Plan& self) { return self->plan.low_rank && self->plan.low_rank->alternating; })
      .def("grid_bits", [](const Plan& self) { return static_cast<std::int64_t>(self->plan.grid_bits); })
      .def("shared_scale", [](const Plan& self) { return self->plan.shared_scale; })
      .def("is_normalized", [](const Plan& self) { return self->plan.codec && self->plan.codec->of_normalized(); })
      .def("is_demo", [](const Plan& self) { return self->plan.demo.has_value(); })
      .def("decay", [](const Plan& self) { return self->plan.demo ? self->plan.demo->decay : 0; })
      // Of a bucket whose tensors have so many rows and columns.
      .def("demo",
           [](const Plan& self, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns) {
             return c10::make_intrusive<DemoHandle>(self->plan, rows, columns);
           });

  // In place; what denormalize() wants is returned.
  library.def("normalize(Tensor(a!) values, Tensor magnitudes) -> float",
              [](const at::Tensor& values, const at::Tensor& magnitudes) {
                const auto usual = span_of<float>(magnitudes, values.numel(), "magnitudes");
                const float factor = ranvier::normalizing_factor(usual);
                ranvier::normalize(span_of<float>(values, -1, "values"), usual, factor);
                return static_cast<double>(factor);
              });
  library.def("denormalize(Tensor(a!) values, Tensor magnitudes, float factor) -> ()",
              [](const at::Tensor& values, const at::Tensor& magnitudes, double factor) {
                ranvier::denormalize(span_of<float>(values, -1, "values"),
                                     span_of<float>(magnitudes, values.numel(), "magnitudes"),
                                     static_cast<float>(factor));
              });
  library.def("follow_magnitudes(Tensor values, Tensor(a!) magnitudes) -> ()",
              [](const at::Tensor& values, const at::Tensor& magnitudes) {
                ranvier::follow_magnitudes(span_of<float>(values, -1, "values"),
                                           span_of<float>(magnitudes, values.numel(), "magnitudes"));
              });

  using LowRank = c10::intrusive_ptr<LowRankHandle>;
  library.class_<LowRankHandle>("LowRank")
      .def(torch::init<std::int64_t, std::int64_t, std::int64_t>())
      .def("rank", &LowRankHandle::rank)
      .def("begin",
           [](const LowRank& self, std::int64_t seed) {
             const at::Tensor left = at::empty({self->rank(), self->rows()}, at::kFloat);
             const at::Tensor right = at::empty({self->rank(), self->columns()}, at::kFloat);
             ranvier::fill_factors(span_of<float>(left, -1, "left"), span_of<float>(right, -1, "right"),
                                   static_cast<std::uint64_t>(seed));
             return std::vector<at::Tensor>{left, right};
           })
      .def("orthonormalize",
           [](const LowRank& self, const at::Tensor& factor) {
             ranvier::orthonormalize(span_of<float>(factor, -1, "factor").data(),
                                     static_cast<std::size_t>(factor.size(-1)), self->shape.rank);
           })
      .def("left_of",
           [](const LowRank& self, const at::Tensor& matrix, const at::Tensor& right, const at::Tensor& left) {
             multiply_by_right(self->shape, self->matrix(matrix), self->right(right), self->left(left));
           })
      .def("right_of",
           [](const LowRank& self, const at::Tensor& matrix, const at::Tensor& left, const at::Tensor& right) {
             multiply_by_left(self->shape, self->matrix(matrix), self->left(left), self->right(right));
           })
      .def("product",
           [](const LowRank& self, const at::Tensor& left, const at::Tensor& right, const at::Tensor& matrix) {
             multiply_factors(self->shape, self->left(left), self->right(right), self->matrix(matrix));
           });

  using Grid = c10::intrusive_ptr<GridHandle>;
  library.class_<GridHandle>("SharedGrid")
      .def(torch::init<std::int64_t, std::int64_t>())
      // The norm of each block of the values, which are transformed; infinite where they have no code.
      .def("spread",
           [](const Grid&, const at::Tensor& values, std::int64_t seed) {
             at::Tensor norms = at::empty({GridHandle::blocks(values.numel())}, at::kFloat);
             ranvier::SharedGrid::spread(span_of<float>(values, -1, "spread"), span_of<float>(norms, -1, "norms"),
                                         static_cast<std::uint32_t>(seed));
             return norms;
           })
      .def("gather",
           [](const Grid&, const at::Tensor& values, std::int64_t seed) {
             ranvier::SharedGrid::gather(span_of<float>(values, -1, "gather"), static_cast<std::uint32_t>(seed));
           })
      .def("encode", &GridHandle::encode)
      .def("decode", &GridHandle::decode);

  using Scale = c10::intrusive_ptr<ScaleHandle>;
  library.class_<ScaleHandle>("SharedScale")
      .def(torch::init<std::int64_t>())
      // The largest magnitude of each block; infinite where values have no code.
      .def("measure",
           [](const Scale&, const at::Tensor& values) {
             at::Tensor largest = at::empty({ScaleHandle::blocks(values.numel())}, at::kFloat);
             ranvier::SharedScale::measure(span_of<float>(values, -1, "measure"),
                                           span_of<float>(largest, -1, "largest"));
             return largest;
           })
      .def("encode", &ScaleHandle::encode)
      .def("decode", &ScaleHandle::decode);
}
