/**
 * Entry of the llama child process. It gets its settings by the first message of its parent, loads
 * the models, reports its address, and goes when the parent goes. A crash in native code ends this
 * process and nothing else.
 */
import type { AddressInfo } from 'node:net';
import type { Server } from 'node:http';

import { createLlamaServer } from './llama-server.ts';
import type {
  ListenAddress,
  LlamaCommand,
  LlamaModelSpec,
  LlamaReport,
  LlamaSettings,
} from './llama-wire.ts';
import { LoadedModels } from './loaded-models.ts';

function report(message: LlamaReport): void {
  process.send?.(message);
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function load(models: LoadedModels, spec: LlamaModelSpec): Promise<void> {
  try {
    report({ type: 'loaded', model: await models.load(spec) });
  } catch (error) {
    // One file that cannot be read must not take the other models down.
    report({ type: 'load-failed', id: spec.id, reason: reasonOf(error) });
  }
}

async function listen(server: Server, address: ListenAddress): Promise<ListenAddress> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    if ('socketPath' in address) server.listen(address.socketPath, resolve);
    else server.listen(address.port, address.host, resolve);
  });
  if ('socketPath' in address) return address;
  // A TCP server has an address object, only a socket path would give text.
  const { port } = server.address() as AddressInfo;
  return { host: address.host, port };
}

async function start(settings: LlamaSettings): Promise<LoadedModels> {
  const models = await LoadedModels.open(settings);
  for (const spec of settings.models) await load(models, spec);
  const server = createLlamaServer(models, settings.apiKey);
  report({ type: 'ready', address: await listen(server, settings.listen) });
  return models;
}

async function obey(command: LlamaCommand, running: Promise<LoadedModels>): Promise<void> {
  const models = await running;
  if (command.type === 'load') await load(models, command.model);
  if (command.type !== 'unload') return;
  await models.unload(command.id);
  report({ type: 'unloaded', id: command.id });
}

function main(): void {
  let running: Promise<LoadedModels> | undefined;
  // The channel is typed by `LlamaCommand` on the other side; nobody else can write to it.
  process.on('message', (command: LlamaCommand) => {
    if (command.type === 'start') running ??= start(command.settings);
    const work =
      command.type === 'start' || running === undefined ? running : obey(command, running);
    work?.catch((error: unknown) => {
      report({ type: 'failed', reason: reasonOf(error) });
      process.exitCode = 1;
      process.disconnect?.();
    });
  });
  // Natively held threads would outlive the parent: this process ends at once.
  process.on('disconnect', () => process.exit());
}

main();
