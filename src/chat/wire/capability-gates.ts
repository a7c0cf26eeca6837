/**
 * Rejects what a model cannot do before inference: 400 with all reasons in `issues[]`, in the order
 * of the checks. For a model that accepts one image, also drops the images of earlier messages.
 */
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { ChatRequest } from './chat-request.ts';
import type { ChatMessage } from './chat-schema.ts';
import { measurePrompt, type PromptFacts } from './prompt-facts.ts';
import { refuseIssues, type FlatIssue } from '../../json/validation.ts';

export type ModelAbilities = Pick<
  CatalogModel,
  'id' | 'capabilities' | 'maxCompletionTokens' | 'maxImages' | 'maxVideos'
>;

const MAX_VIDEOS_PER_REQUEST = 3;

/** Returns the same object unless images were dropped. Throws 400 `INVALID_REQUEST`. */
export function fitToModel(
  request: ChatRequest,
  model: ModelAbilities,
  canSearch: boolean,
): ChatRequest {
  const most = model.maxCompletionTokens;
  const asked = request.maxOutputTokens ?? 0;
  const isAbove = most > 0 && asked > most;
  const can = model.capabilities;
  const isSingle = can.has('vision') && !can.has('multipleImages');
  const fitted = isSingle ? keepLastImages(request) : request;
  const issues = [
    ...mediaIssues(fitted.facts, model),
    ...featureIssues(fitted, can, canSearch).map(([path, what]) => ({
      code: 'unsupported_feature',
      path,
      message: `The model ${model.id} does not support ${what}`,
    })),
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

function mediaIssues(facts: PromptFacts, model: ModelAbilities): FlatIssue[] {
  const can = model.capabilities;
  const mostImages = model.maxImages ?? (can.has('multipleImages') ? Infinity : 1);
  const mostVideos = Math.min(model.maxVideos ?? Infinity, MAX_VIDEOS_PER_REQUEST);
  const media = [
    [facts.imageCount, can.has('vision'), 'images', mostImages, 'images'],
    [facts.audioCount, can.has('audioInput'), 'audio input', Infinity, ''],
    [facts.videoCount, can.has('videoInput'), 'video input', mostVideos, 'videos'],
  ] as const;
  return media.flatMap(([count, isTaken, what, most, many]) => {
    if (count === 0 || (isTaken && count <= most)) return [];
    const code = isTaken ? 'too_big' : 'unsupported_feature';
    const message = isTaken
      ? `The model ${model.id} accepts at most ${most} ${many} per request, got ${count}`
      : `The model ${model.id} does not support ${what}`;
    return [{ code, path: ['messages'], message }];
  });
}

function featureIssues(
  request: ChatRequest,
  can: ModelAbilities['capabilities'],
  canSearch: boolean,
): (readonly [path: readonly string[], what: string])[] {
  const { tools, responseFormat, logprobs, parameters } = request;
  const format = responseFormat?.type ?? 'text';
  const search = ['svc_parameters', 'enable_web_search'];
  const social = ['svc_parameters', 'enable_x_search'];
  const features = [
    [tools.length > 0, can.has('functionCalling'), ['tools'], 'tools'],
    [
      format !== 'text',
      can.has('responseSchema'),
      ['response_format'],
      `the response format ${format}`,
    ],
    [logprobs, can.has('logProbs'), ['logprobs'], 'logprobs'],
    // `auto` may go without a search.
    [parameters.enable_web_search === 'on', canSearch, search, 'web search; use off or auto'],
    [parameters.enable_x_search, can.has('xSearch'), social, 'social search'],
  ] as const;
  return features.flatMap(([isAsked, isTaken, path, what]) =>
    isAsked && !isTaken ? [[path, what] as const] : [],
  );
}

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
  // An empty message stays, because chat templates expect alternating roles.
  const content = kept.length > 0 ? kept : [{ type: 'text' as const, text: '[image omitted]' }];
  return { ...message, content };
}
