/**
 * Members by which a caller of a gateway (LiteLLM, OpenRouter) or a server (SGLang, vLLM) gets another
 * model than the priced one, sends members to the provider behind it, or overtakes other callers. They
 * are left out of every request.
 */
export const UNSOLD_MEMBERS = {
  content_policy_fallbacks: undefined,
  context_window_fallbacks: undefined,
  extra_body: undefined,
  fallbacks: undefined,
  lora_path: undefined,
  mock_testing_content_policy_fallbacks: undefined,
  mock_testing_context_fallbacks: undefined,
  mock_testing_fallbacks: undefined,
  models: undefined,
  priority: undefined,
};
