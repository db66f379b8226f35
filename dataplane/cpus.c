/* SPDX-License-Identifier: Apache-2.0 */
#include "cpus.h"

#include <stdio.h>

void
kvp_cpus_format(const cpu_set_t *cpus, char *text, size_t size)
{
	size_t used = 0;
	int last;
	int rc;

	(void)snprintf(text, size, "none");
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu = last + 1) {
		last = cpu;
		if (!CPU_ISSET((size_t)cpu, cpus))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET((size_t)last + 1, cpus))
			last++;
		rc = snprintf(text + used, size - used, last > cpu ? "%s%d-%d" : "%s%d",
			      used > 0 ? "," : "", cpu, last);
		if (rc < 0 || (size_t)rc >= size - used)
			return;
		used += (size_t)rc;
	}
}
