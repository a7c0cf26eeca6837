/** Code with a copy button: one block, or one tab per language. */
import type { ComponentChildren, ComponentProps } from 'preact';
import { useId, useState } from 'preact/hooks';
import type { Sample } from '../code-samples.ts';
import { Copy } from './values.tsx';

export function CodeTabs({ samples }: { samples: readonly Sample[] }) {
  const [at, setAt] = useState(0);
  const id = useId();
  const shown = samples[at] ?? samples[0];
  if (shown === undefined) return null;
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = (at + step + samples.length) % samples.length;
    setAt(next);
    document.getElementById(`${id}-${next}`)?.focus();
  };
  return (
    <CodeBlock
      title={
        <div role="tablist" aria-label="Language" onKeyDown={move}>
          {samples.map(({ name }, index) => (
            <button
              key={name}
              id={`${id}-${index}`}
              type="button"
              role="tab"
              aria-selected={index === at}
              aria-controls={`${id}-text`}
              tabIndex={index === at ? 0 : -1}
              onClick={() => setAt(index)}
            >
              {name}
            </button>
          ))}
        </div>
      }
      text={shown.text}
      id={`${id}-text`}
      role="tabpanel"
      aria-labelledby={`${id}-${at}`}
    />
  );
}

interface CodeBlockProps extends Pick<ComponentProps<'pre'>, 'id' | 'role' | 'aria-labelledby'> {
  readonly title: ComponentChildren;
  readonly text: string;
}

export function CodeBlock({ title, text, ...attributes }: CodeBlockProps) {
  return (
    <div class="sample">
      <div class="title">
        {title}
        <Copy text={text} />
      </div>
      <pre {...attributes} tabIndex={0}>
        <code>{text}</code>
      </pre>
    </div>
  );
}
