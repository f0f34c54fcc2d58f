// Runs a test once for each instruction set that this CPU has and the kernels were compiled for.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "hwy/highway.h"

namespace ranvier::testing {

class EachInstructionSet : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

inline std::string instruction_set_name(const ::testing::TestParamInfo<std::int64_t>& target) {
  return hwy::TargetName(target.param);
}

}  // namespace ranvier::testing

#define RANVIER_FOR_EACH_INSTRUCTION_SET(suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(With, suite, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), \
                           ranvier::testing::instruction_set_name)
