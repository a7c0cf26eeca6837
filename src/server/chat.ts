/** The chat and the models that it can be had with, wired. */
import type { LargeBodies } from './large-bodies.ts';
import { chatCompletionsRoute } from '../chat/chat-completions/chat-completions.ts';
import { modelRoutes } from '../models/models.ts';
import type { Config } from '../config/config.ts';
import { callerRate } from '../http/caller-limits.ts';
import { type ChatParts, planAdditions } from '../chat/chat.ts';
import { type EngineDialect, engineDialect } from '../chat/wire/engine-request.ts';
import { configuredEngines, hostOf } from '../engines/engine-settings.ts';
import { type Extras, additionParts } from './extras.ts';
import { perConfig } from '../config/per-config.ts';
import type { Feature } from '../http/feature.ts';
import type { FeatureParts } from './feature-parts.ts';

/** What a chat is made of; embeddings need it as well. */
export function chatParts(shared: FeatureParts, extras: Extras): ChatParts {
  const { config, catalog, engines, sales, clock, ids, log } = shared;
  const additions = additionParts(extras, clock, config);
  const dialects = perConfig(config, dialectsOf);
  return {
    catalog,
    engines,
    sales,
    clock,
    ids,
    log,
    serviceName: config().service.name,
    systemPrompt: () => config().service.systemPrompt ?? '',
    rateOf: (caller, model) => callerRate(config().limits, caller, model),
    dialectOf: (id) => dialects().get(id) ?? engineDialect(''),
    canSearch: extras.web.canSearch,
    planAdditions: (call, request, model) => planAdditions(additions, call, request, model),
  };
}

export function chatFeature(chat: ChatParts, largeBodies: LargeBodies): Feature {
  return {
    routes: [
      chatCompletionsRoute(chat, (body, options) => largeBodies.chat(body, options)),
      ...modelRoutes(chat.catalog),
    ],
  };
}

/** How the server behind each configured address spells what servers spell differently. */
function dialectsOf(config: Config): ReadonlyMap<string, EngineDialect> {
  return new Map(
    configuredEngines(config).map((one) => {
      const continuousUsage = config.engines[one.id]?.continuousUsage ?? false;
      return [one.id, { ...engineDialect(hostOf(one)), continuousUsage }];
    }),
  );
}
