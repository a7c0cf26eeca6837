/** What a model can do in a chat on this server: made once for each model of a catalogue. */
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ChatAbilities } from './wire/capability-gates.ts';

const known = new WeakMap<CatalogModel, ChatAbilities>();

/** `canSearch`: whether the server can search the web; it does not change while it runs. */
export function abilitiesOf(model: CatalogModel, canSearch: boolean): ChatAbilities {
  let abilities = known.get(model);
  if (abilities === undefined) {
    abilities = makeAbilities(model, canSearch);
    known.set(model, abilities);
  }
  return abilities;
}

function makeAbilities(model: CatalogModel, canSearch: boolean): ChatAbilities {
  const can = model.capabilities;
  return {
    vision: can.has('vision'),
    multipleImages: can.has('multipleImages'),
    audioInput: can.has('audioInput'),
    videoInput: can.has('videoInput'),
    functionCalling: can.has('functionCalling'),
    responseSchema: can.has('responseSchema'),
    logProbs: can.has('logProbs'),
    reasoning: can.has('reasoning'),
    reasoningEffort: can.has('reasoningEffort'),
    webSearch: canSearch,
    xSearch: can.has('xSearch'),
    maxCompletionTokens: model.maxCompletionTokens || Number.MAX_SAFE_INTEGER,
    ...(model.maxImages === undefined ? {} : { maxImages: model.maxImages }),
    ...(model.maxVideos === undefined ? {} : { maxVideos: model.maxVideos }),
    ...(model.reasoningEfforts === undefined
      ? {}
      : { reasoningEffortOptions: model.reasoningEfforts }),
  };
}
