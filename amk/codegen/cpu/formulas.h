/* The formulas of exp, tanh, sigmoid, silu, gelu, erf and rsqrt, shared by every emitter: a target
 * defines the primitives (amk_fma, amk_set, amk_select, amk_word, amk_unword, amk_sqrt, with the
 * suffix X) and then instantiates AMK_MATH. Divisions and square roots are correctly rounded. */
#ifndef AMK_FORMULAS_H
#define AMK_FORMULAS_H

/* The formulas, T a float or a vector, U its words, X the suffix.
 *
 * exp: x = n ln2 + r with n the nearest integer (adding and taking off 1.5 * 2^23 rounds, and
 * leaves n in the low bits of the sum); exp r = 1 + r + r^2 Q(r), |r| <= ln2 / 2. 2^n is applied
 * as two powers of two whose exponents add up to n, so that subnormal results round once; 512
 * is added to n to halve it without a sign. Past the clamps the result is 0 or infinity.
 *
 * tanh: odd polynomial below 0.625, 1 - 2 / (exp 2|x| + 1) above. sigmoid: exp(-|x|) never
 * overflows. gelu_tanh: (1 + tanh u) / 2 = sigmoid 2u, with no cancellation for negative u.
 * erfc, a >= 0: exp(-a^2) t P(t), t = 2 / (2 + a), the rounding of a^2 put back to first order.
 * gelu_erf: x Phi(x), from erfc so that the negative side keeps relative accuracy. */
#define AMK_MATH(T, U, X)                                                                    \
  AMK_INLINE T amk_abs##X(T x) { return amk_unword##X(amk_word##X(x) & 0x7fffffffu); }       \
  AMK_INLINE T amk_copysign##X(T x, T sign) {                                                \
    return amk_unword##X((amk_word##X(x) & 0x7fffffffu) | (amk_word##X(sign) & 0x80000000u)); \
  }                                                                                          \
  AMK_INLINE T amk_exp##X(T x) {                                                             \
    x = amk_select##X(x > 89.0f, amk_set##X(89.0f), x);                                      \
    x = amk_select##X(x < -104.0f, amk_set##X(-104.0f), x);                                  \
    T shifted = amk_fma##X(x, amk_set##X(0x1.715476p+0f), amk_set##X(0x1.8p+23f));           \
    T n = shifted - 0x1.8p+23f;                                                              \
    T r = amk_fma##X(n, amk_set##X(-0x1.62e430p-1f), x);                                     \
    r = amk_fma##X(n, amk_set##X(0x1.05c610p-29f), r);                                       \
    T q = amk_fma##X(r, amk_set##X(1.3821696629747748e-3f), amk_set##X(8.368670009076595e-3f)); \
    q = amk_fma##X(q, r, amk_set##X(4.1668254882097244e-2f));                                \
    q = amk_fma##X(q, r, amk_set##X(1.666652113199234e-1f));                                 \
    q = amk_fma##X(q, r, amk_set##X(4.999999403953552e-1f));                                 \
    T e = amk_fma##X(q, r * r, r) + 1.0f;                                                    \
    U power = amk_word##X(shifted) - 0x4b400000u + 512u;                                     \
    U half = power >> 1;                                                                     \
    T low = amk_unword##X((half - (256u - 127u)) << 23);                                     \
    T high = amk_unword##X((power - half - (256u - 127u)) << 23);                            \
    return e * low * high;                                                                   \
  }                                                                                          \
  AMK_INLINE T amk_tanh##X(T x) {                                                            \
    T a = amk_abs##X(x), u = x * x;                                                          \
    T p = amk_fma##X(u, amk_set##X(-5.7162027806043625e-3f), amk_set##X(2.0649708807468414e-2f)); \
    p = amk_fma##X(p, u, amk_set##X(-5.374317243695259e-2f));                                \
    p = amk_fma##X(p, u, amk_set##X(1.3331486284732819e-1f));                                \
    p = amk_fma##X(p, u, amk_set##X(-3.333328366279602e-1f));                                \
    T near = amk_fma##X(p * u, a, a);                                                        \
    T far = 1.0f - 2.0f / (amk_exp##X(a + a) + 1.0f);                                        \
    return amk_copysign##X(amk_select##X(a < 0.625f, near, far), x);                         \
  }                                                                                          \
  AMK_INLINE T amk_sigmoid##X(T x) {                                                         \
    T e = amk_exp##X(-amk_abs##X(x));                                                        \
    return amk_select##X(x < 0.0f, e, amk_set##X(1.0f)) / (e + 1.0f);                        \
  }                                                                                          \
  AMK_INLINE T amk_silu##X(T x) { return x * amk_sigmoid##X(x); }                            \
  AMK_INLINE T amk_gelu_tanh##X(T x) {                                                       \
    T cubic = amk_fma##X(x * x, amk_set##X(0.044715f), amk_set##X(1.0f)) * x;                \
    return x * amk_sigmoid##X(cubic * 1.5957691216057308f);                                  \
  }                                                                                          \
  AMK_INLINE T amk_erfc_positive##X(T a) {                                                   \
    T t = 2.0f / (a + 2.0f), square = a * a, rest = amk_fma##X(a, a, -square);               \
    T p = amk_fma##X(t, amk_set##X(3.5765934735536575e-2f), amk_set##X(-1.9102586805820465e-1f)); \
    p = amk_fma##X(p, t, amk_set##X(3.8139837980270386e-1f));                                \
    p = amk_fma##X(p, t, amk_set##X(-2.895573377609253e-1f));                                \
    p = amk_fma##X(p, t, amk_set##X(-2.1996021270751953e-2f));                               \
    p = amk_fma##X(p, t, amk_set##X(3.5430289804935455e-2f));                                \
    p = amk_fma##X(p, t, amk_set##X(5.486685782670975e-2f));                                 \
    p = amk_fma##X(p, t, amk_set##X(1.855982393026352e-1f));                                 \
    p = amk_fma##X(p, t, amk_set##X(2.4517855048179626e-1f));                                \
    p = amk_fma##X(p, t, amk_set##X(2.822524607181549e-1f));                                 \
    p = amk_fma##X(p, t, amk_set##X(2.820885181427002e-1f));                                 \
    T e = amk_exp##X(-square);                                                               \
    return amk_fma##X(-e, rest, e) * (p * t);                                                \
  }                                                                                          \
  AMK_INLINE T amk_erf##X(T x) {                                                             \
    T a = amk_abs##X(x), u = x * x;                                                          \
    T p = amk_fma##X(u, amk_set##X(-6.068946095183492e-4f), amk_set##X(5.002499092370272e-3f)); \
    p = amk_fma##X(p, u, amk_set##X(-2.6767468079924583e-2f));                               \
    p = amk_fma##X(p, u, amk_set##X(1.1281602829694748e-1f));                                \
    p = amk_fma##X(p, u, amk_set##X(-3.761242628097534e-1f));                                \
    p = amk_fma##X(p, u, amk_set##X(1.2837916709551256e-1f));                                \
    T near = amk_fma##X(p, a, a);                                                            \
    T far = 1.0f - amk_erfc_positive##X(amk_select##X(a > 5.0f, amk_set##X(5.0f), a));       \
    return amk_copysign##X(amk_select##X(a < 0.8f, near, far), x);                           \
  }                                                                                          \
  AMK_INLINE T amk_gelu_erf##X(T x) {                                                        \
    T a = amk_abs##X(x) * 0.70710678118654752f;                                              \
    T c = amk_erfc_positive##X(amk_select##X(a > 11.0f, amk_set##X(11.0f), a));              \
    return x * 0.5f * amk_select##X(x < 0.0f, c, 2.0f - c);                                  \
  }                                                                                          \
  AMK_INLINE T amk_rsqrt##X(T x) { return 1.0f / amk_sqrt##X(x); }

#endif
