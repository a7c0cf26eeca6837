/**
 * What a model cannot do is refused before inference: 400 with the reasons in `issues[]`.
 * Also keeps, for a model that takes one image, only the last message that bears one.
 *
 * The order of the reasons is the order of the checks below; all that apply are named.
 */
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { ChatRequest } from './chat-request.ts';
import type { ChatMessage } from './chat-schema.ts';
import { measurePrompt } from './prompt-facts.ts';
import { refuseIssues, type FlatIssue } from '../../json/validation.ts';

/** What a chat model can do, as far as a request can ask for it. */
export type ModelAbilities = Pick<
  CatalogModel,
  'id' | 'capabilities' | 'maxCompletionTokens' | 'maxImages' | 'maxVideos'
>;

/** Videos of one request: decisions, section 7. */
export const MAX_VIDEOS_PER_REQUEST = 3;

/**
 * Refuses what the model cannot do (400 `INVALID_REQUEST`), and gives back the request as the
 * model takes it: the same object unless images of earlier messages had to go. `canSearch`: whether
 * this server can search the web.
 */
export function fitToModel(
  request: ChatRequest,
  model: ModelAbilities,
  canSearch: boolean,
): ChatRequest {
  const most = model.maxCompletionTokens;
  const asked = request.maxOutputTokens ?? 0;
  const isAbove = most > 0 && asked > most;
  if (request.isPlain && !isAbove) return request;
  const can = model.capabilities;
  const fitted =
    can.has('vision') && !can.has('multipleImages') ? keepLastImages(request) : request;
  const issues = [
    ...mediaIssues(fitted, model),
    ...featureIssues(fitted, model),
    ...searchIssues(fitted, model, canSearch),
  ];
  if (isAbove) {
    const field = Object.hasOwn(request.fields, 'max_completion_tokens')
      ? 'max_completion_tokens'
      : 'max_tokens';
    const message = `${asked} is above the ${most} output tokens of ${model.id}`;
    issues.push({ code: 'too_big', path: [field], message });
  }
  if (issues.length > 0) throw refuseIssues(issues);
  return fitted;
}

function unsupported(path: readonly string[], model: ModelAbilities, what: string): FlatIssue {
  const message = `The model ${model.id} does not take ${what}`;
  return { code: 'unsupported_feature', path, message };
}

function mediaIssues({ facts }: ChatRequest, model: ModelAbilities): FlatIssue[] {
  const can = model.capabilities;
  const most = model.maxVideos ?? MAX_VIDEOS_PER_REQUEST;
  const media = [
    {
      count: facts.imageCount,
      capability: 'vision',
      name: 'images',
      cap: model.maxImages ?? (can.has('multipleImages') ? Infinity : 1),
    },
    { count: facts.audioCount, capability: 'audioInput', name: 'audio input', cap: Infinity },
    {
      count: facts.videoCount,
      capability: 'videoInput',
      name: 'video input',
      many: 'videos',
      cap: Math.min(most, MAX_VIDEOS_PER_REQUEST),
    },
  ] as const;
  const issues: FlatIssue[] = [];
  for (const medium of media) {
    const { count, capability, name, cap } = medium;
    if (count === 0) continue;
    if (!can.has(capability)) {
      issues.push(unsupported(['messages'], model, name));
    } else if (count > cap) {
      const many = 'many' in medium ? medium.many : name;
      const message = `The model ${model.id} takes at most ${cap} ${many} per request, got ${count}`;
      issues.push({ code: 'too_big', path: ['messages'], message });
    }
  }
  return issues;
}

function featureIssues(request: ChatRequest, model: ModelAbilities): FlatIssue[] {
  const can = model.capabilities;
  const issues: FlatIssue[] = [];
  if (request.tools.length > 0 && !can.has('functionCalling')) {
    issues.push(unsupported(['tools'], model, 'tools'));
  }
  const format = request.responseFormat?.type ?? 'text';
  if (format !== 'text' && !can.has('responseSchema')) {
    issues.push(unsupported(['response_format'], model, `the response format ${format}`));
  }
  if (request.logprobs && !can.has('logProbs')) {
    issues.push(unsupported(['logprobs'], model, 'logprobs'));
  }
  return issues;
}

/** `auto` leaves the search to our discretion, so only an outright `on` is refused. */
function searchIssues(
  { parameters }: ChatRequest,
  model: ModelAbilities,
  canSearch: boolean,
): FlatIssue[] {
  const issues: FlatIssue[] = [];
  if (parameters.enable_web_search === 'on' && !canSearch) {
    const path = ['svc_parameters', 'enable_web_search'];
    issues.push(unsupported(path, model, 'web search; use off or auto'));
  }
  if (parameters.enable_x_search && !model.capabilities.has('xSearch')) {
    issues.push(unsupported(['svc_parameters', 'enable_x_search'], model, 'social search'));
  }
  return issues;
}

/** Images of every message but the last that bears one give way to a short note. */
function keepLastImages(request: ChatRequest): ChatRequest {
  if (request.facts.imageMessageCount < 2) return request;
  const last = request.messages.findLastIndex(
    ({ content }) => Array.isArray(content) && content.some((part) => part.type === 'image_url'),
  );
  const messages = request.messages.map((message, index) =>
    index === last ? message : withoutImages(message),
  );
  const fields = { ...request.fields, messages };
  return { ...request, messages, facts: measurePrompt(messages, fields), fields };
}

function withoutImages(message: ChatMessage): ChatMessage {
  if (message.role !== 'user' || typeof message.content === 'string') return message;
  const kept = message.content.filter((part) => part.type !== 'image_url');
  if (kept.length === message.content.length) return message;
  // An emptied message stays, because chat templates want the roles to alternate.
  const content = kept.length > 0 ? kept : [{ type: 'text' as const, text: '[image omitted]' }];
  return { ...message, content };
}
