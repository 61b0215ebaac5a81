// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Guest driver for the PMU of the emulated machine. It finds the memory that the
 * hardware model shares (an ivshmem-plain device) and checks that both sides mean
 * the same layout. Then it registers the core and the uncore PMU.
 *
 * Never does anything on a machine whose device does not carry the magic number.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "processor.h"
#include "rondpoint_pmu.h"

#define RP_BAR 2

u64 *rp_memory;

static bool pmu = true;
module_param(pmu, bool, 0444);
MODULE_PARM_DESC(pmu, "N: no PMU at all, as in most virtual machines; prices only");

/* One line for the first thing that is wrong, or 0. */
static int check_header(void)
{
	u64 cpus = rp_load(RP_HEADER_CPUS);

	if (rp_load(RP_HEADER_MAGIC) != RP_MAGIC) {
		pr_err(RP_NAME ": the ivshmem device holds %#llx where the model's magic is %#llx; is the plugin loaded?\n",
		       rp_load(RP_HEADER_MAGIC), (u64)RP_MAGIC);
		return -ENODEV;
	}
	if (rp_load(RP_HEADER_VERSION) != RP_LAYOUT_VERSION) {
		pr_err(RP_NAME ": the model speaks layout version %llu, this driver %d\n",
		       rp_load(RP_HEADER_VERSION), RP_LAYOUT_VERSION);
		return -EPROTO;
	}
	if (cpus < num_possible_cpus() || cpus > RP_MAX_CPUS ||
	    rp_load(RP_HEADER_NODES) - 1 >= RP_MAX_NODES ||
	    rp_load(RP_HEADER_LINKS) > RP_MAX_LINKS ||
	    rp_load(RP_HEADER_EVENTS) - 1 >= RP_MAX_EVENTS ||
	    rp_load(RP_HEADER_SLOTS) - 1 >= RP_MAX_SLOTS - 1 ||
	    rp_load(RP_HEADER_VENDOR) > RP_VENDOR_ARM ||
	    rp_load(RP_HEADER_PROCESSOR) >= RP_PROCESSORS) {
		pr_err(RP_NAME ": the model's header is out of bounds: %llu CPUs (kernel %u), %llu nodes, %llu links, %llu events, %llu counters, vendor %llu, processor %llu\n",
		       cpus, num_possible_cpus(), rp_load(RP_HEADER_NODES),
		       rp_load(RP_HEADER_LINKS), rp_load(RP_HEADER_EVENTS),
		       rp_load(RP_HEADER_SLOTS), rp_load(RP_HEADER_VENDOR),
		       rp_load(RP_HEADER_PROCESSOR));
		return -EPROTO;
	}
	return 0;
}

/* The kernel may run with numa=off on purpose, so a difference is only told. */
static void compare_nodes(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		u64 node = rp_load(RP_HEADER_CPU_NODE + cpu);

		if (node != cpu_to_node(cpu)) {
			pr_warn(RP_NAME ": CPU %u is on node %llu for the model, on node %d for the kernel\n",
				cpu, node, cpu_to_node(cpu));
			return;
		}
	}
}

static int register_all(void)
{
	int error;

	if (!pmu)
		return 0;
	error = rp_samples_start();
	if (error)
		return error;
	error = rp_core_register();
	if (error)
		goto stop_samples;
	error = rp_ibs_register();
	if (error)
		goto unregister_core;
	error = rp_spe_register();
	if (error)
		goto unregister_ibs;
	error = rp_uncore_register();
	if (error)
		goto unregister_spe;
	error = rp_node_register();
	if (error)
		goto unregister_uncore;
	return 0;

unregister_uncore:
	rp_uncore_unregister();
unregister_spe:
	rp_spe_unregister();
unregister_ibs:
	rp_ibs_unregister();
unregister_core:
	rp_core_unregister();
stop_samples:
	rp_samples_stop();
	rp_files_free();
	return error;
}

static int probe(struct pci_dev *device, const struct pci_device_id *id)
{
	int error;

	if (rp_memory)
		return -EBUSY;
	error = pcim_enable_device(device);
	if (error)
		return error;
	if (pci_resource_len(device, RP_BAR) < RP_BAR_BYTES) {
		pr_err(RP_NAME ": BAR %d of the ivshmem device has %llu bytes, the layout needs %d\n",
		       RP_BAR, (u64)pci_resource_len(device, RP_BAR), RP_BAR_BYTES);
		return -ENODEV;
	}
	rp_memory = devm_memremap(&device->dev, pci_resource_start(device, RP_BAR), RP_BAR_BYTES,
				  MEMREMAP_WB);
	if (IS_ERR_OR_NULL(rp_memory)) {
		rp_memory = NULL;
		return -ENOMEM;
	}
	error = check_header();
	if (error)
		goto forget;
	rp_price_start();
	error = register_all();
	if (error) {
		rp_price_stop();
		goto forget;
	}
	compare_nodes();
	rp_store(RP_HEADER_DRIVER, RP_LAYOUT_VERSION);
	pr_info(RP_NAME ": %llu CPUs, %llu nodes, %llu links, %llu counters per CPU\n",
		rp_load(RP_HEADER_CPUS), rp_load(RP_HEADER_NODES), rp_load(RP_HEADER_LINKS),
		rp_load(RP_HEADER_SLOTS));
	return 0;
forget:
	rp_memory = NULL;
	return error;
}

static void remove(struct pci_dev *device)
{
	rp_store(RP_HEADER_DRIVER, 0);
	if (pmu) {
		rp_node_unregister();
		rp_uncore_unregister();
		rp_spe_unregister();
		rp_ibs_unregister();
		rp_core_unregister();
		rp_samples_stop();
		rp_files_free();
	}
	rp_price_stop();
	rp_memory = NULL;
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(RP_PCI_VENDOR, RP_PCI_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, ids);

/*
 * Open events hold the module, so unloading waits for them; unbinding by hand
 * would not, and is therefore not offered.
 */
static struct pci_driver pmu_driver = {
	.name = RP_NAME,
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	.driver = { .suppress_bind_attrs = true },
};

/* Loading fails where the device is missing or was refused: better than silence. */
static int __init load(void)
{
	int error = pci_register_driver(&pmu_driver);

	if (error)
		return error;
	if (rp_memory)
		return 0;
	pci_unregister_driver(&pmu_driver);
	pr_err(RP_NAME ": no usable ivshmem device (PCI %04x:%04x)\n", RP_PCI_VENDOR, RP_PCI_DEVICE);
	return -ENODEV;
}

static void __exit unload(void)
{
	pci_unregister_driver(&pmu_driver);
}

module_init(load);
module_exit(unload);

MODULE_DESCRIPTION("PMU of the emulated NUMA machine");
MODULE_LICENSE("GPL");
