/** Entry file of the llama child: loads the models and starts the server. */
import { reasonOf } from '../../core/log.ts';
import { serveLocal } from '../local/local-server.ts';
import type { LlamaCommand, LlamaReport, LlamaSettings } from './llama-engine.ts';
import type { LlamaModelSpec } from './llama-models.ts';
import { llamaService } from './llama-server.ts';
import { LoadedModels } from './loaded-models.ts';

serveLocal(async (given, send) => {
  const { threads, models: specs } = given as LlamaSettings; // sent by `LlamaEngine`
  const report = (message: LlamaReport): void => send(message);
  const models = await LoadedModels.open(Math.max(1, threads));
  const load = async (model: LlamaModelSpec): Promise<void> => {
    try {
      report({ type: 'loaded', model: await models.load(model) });
    } catch (error) {
      // One file that cannot be read must not take the other models down.
      report({ type: 'load-failed', id: model.id, reason: reasonOf(error) });
    }
  };
  for (const spec of specs) await load(spec);
  return {
    ...llamaService(models),
    onMessage: (message) => void load((message as LlamaCommand).model), // sent by `LlamaEngine`
  };
});
