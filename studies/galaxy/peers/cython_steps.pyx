# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The steps of peer_cython between the products."""

from libc.math cimport exp, fabs, log1p


def middle(double[:, ::1] hidden, const long[::1] y, const double[:, ::1] theta1,
           const double[:, ::1] theta2, double[:, ::1] d_theta1, double[:, ::1] d_theta2):
    """Turns x·W1 into δ2, and adds to the gradients all but xᵀ·δ2. Returns the cost. All of them
    are without λ, and m times as large."""
    cdef Py_ssize_t s, h, o, units = hidden.shape[1]
    cdef double z, delta3, slope, cost = 0
    cdef double[::1] a, delta2 = d_theta1[:, 0].copy()
    for s in range(hidden.shape[0]):
        a = hidden[s]
        for h in range(units):
            a[h] = 1 / (1 + exp(-(a[h] + theta1[h, 0])))
            delta2[h] = 0
        for o in range(theta2.shape[0]):
            z = theta2[o, 0]
            for h in range(units):
                z += theta2[o, 1 + h] * a[h]
            delta3 = 1 / (1 + exp(-z)) - (y[s] == o)
            cost += (z if z > 0 else 0) + log1p(exp(-fabs(z))) - (z if y[s] == o else 0)
            d_theta2[o, 0] += delta3
            for h in range(units):
                d_theta2[o, 1 + h] += delta3 * a[h]
                delta2[h] += delta3 * theta2[o, 1 + h]
        for h in range(units):
            a[h] = delta2[h] * a[h] * (1 - a[h])
            d_theta1[h, 0] += a[h]
    return cost
