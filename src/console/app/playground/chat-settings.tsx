/** Chat settings: model, system prompt, web search and sampling. Empty fields are not sent. */
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { Select, TextArea, TextField } from '../parts/form.tsx';
import { type ModelChoice, ModelSelect, hasCapability } from './parts.tsx';

export interface Settings {
  readonly system: string;
  readonly search: 'off' | 'auto' | 'on';
  readonly effort: string;
  readonly numbers: Readonly<Record<string, string>>;
}

export const settings = signal<Settings>({ system: '', search: 'off', effort: '', numbers: {} });

const NUMBERS = [
  ['max_completion_tokens', 'Max. completion tokens', '1', undefined, '1'],
  ['temperature', 'Temperature', '0', '2', '0.1'],
  ['top_p', 'Top p', '0', '1', '0.05'],
  ['frequency_penalty', 'Frequency penalty', '-2', '2', '0.1'],
  ['presence_penalty', 'Presence penalty', '-2', '2', '0.1'],
  ['seed', 'Seed', '0', undefined, '1'],
] as const;

export function parametersOf({ numbers, effort }: Settings): Record<string, unknown> {
  const set = Object.entries(numbers).filter(
    ([, text]) => text.trim() !== '' && !Number.isNaN(Number(text)),
  );
  return {
    ...Object.fromEntries(set.map(([name, text]) => [name, Number(text)])),
    ...(effort === '' ? {} : { reasoning_effort: effort }),
  };
}

function change(changes: Partial<Settings>): void {
  settings.value = { ...settings.value, ...changes };
}

interface ChatSettingsProps {
  readonly choice: ModelChoice;
  readonly children: ComponentChildren;
}

export function ChatSettings({ choice, children }: ChatSettingsProps) {
  const { system, search, effort, numbers } = settings.value;
  const efforts = choice.model?.model_spec.capabilities?.reasoningEffortOptions ?? [];
  const canSearch = hasCapability(choice.model, 'supportsWebSearch');
  return (
    <aside class="settings" aria-label="Settings">
      <ModelSelect choice={choice} />
      <TextArea
        label="System prompt"
        rows={4}
        value={system}
        placeholder="Instructions for the model"
        onInput={(value) => change({ system: value })}
      />
      {canSearch && (
        <Select
          label="Web search"
          value={search}
          options={[
            ['off', 'Off'],
            ['auto', 'If the model requests it'],
            ['on', 'Before each response'],
          ]}
          onInput={(one) => change({ search: one as Settings['search'] })}
        />
      )}
      {efforts.length > 0 && (
        <Select
          label="Reasoning effort"
          value={effort}
          options={[['', 'Default'], ...efforts.map((one) => [one, one] as const)]}
          onInput={(one) => change({ effort: one })}
        />
      )}
      <details>
        <summary>Parameters</summary>
        <div class="numbers">
          {NUMBERS.map(([name, label, min, max, step]) => (
            <TextField
              key={name}
              {...{ label, min, max, step }}
              type="number"
              inputMode="decimal"
              placeholder="default"
              value={numbers[name] ?? ''}
              onInput={(text) => change({ numbers: { ...numbers, [name]: text } })}
            />
          ))}
        </div>
      </details>
      {children}
    </aside>
  );
}
