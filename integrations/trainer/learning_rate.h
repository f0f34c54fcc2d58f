// The learning rate over a run: a straight way up, then half a cosine down to 0 (Loshchilov and Hutter, "SGDR", ICLR
// 2017, without restarts).
#pragma once

namespace ranvier::trainer {

struct LearningRate {
  double peak = 0.1;
  double first = 0;    // where warming up begins
  double warm_up = 0;  // steps
  double steps = 1;    // of all of training, warming up included
  // Behind so many steps, which parameter servers count in fractions.
  double at(double step) const;
};

// The rate for steps of `samples` where `rate` is right for `reference` of them: as many times as large, from which a
// run warms up, since at first such steps are too long. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet
// in 1 Hour", 2017 (arXiv:1706.02677).
LearningRate scaled_linearly(double rate, double samples, double reference);

}  // namespace ranvier::trainer
