/** The chat and the models that it can be had with, wired. */
import type { LargeBodies } from '../api/large-bodies.ts';
import { chatCompletionsRoute } from '../api/routes/chat-completions/chat-completions.ts';
import { modelRoutes } from '../api/routes/models/models.ts';
import type { Config } from '../config/config.ts';
import { callerRate } from '../flows/caller-limits.ts';
import { type ChatParts, planAdditions } from '../flows/chat/chat.ts';
import { type EngineDialect, engineDialect } from '../wire/engine-request.ts';
import { configuredEngines, hostOf } from './engine-settings.ts';
import { type Extras, additionParts } from './extras.ts';
import { perConfig } from './per-config.ts';
import type { Shared, Subject } from './subject.ts';

/** What a chat is made of; embeddings need it as well. */
export function chatParts(shared: Shared, extras: Extras): ChatParts {
  const { config, catalog, engines, charge, clock, ids, log } = shared;
  const additions = additionParts(extras, clock, config);
  const dialects = perConfig(config, dialectsOf);
  return {
    catalog,
    engines,
    charge,
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

export function chatSubject(chat: ChatParts, largeBodies: LargeBodies): Subject {
  return { routes: [chatCompletionsRoute(chat, largeBodies), ...modelRoutes(chat.catalog)] };
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
