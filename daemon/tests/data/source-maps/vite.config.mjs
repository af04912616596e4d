export default { logLevel: 'error', build: { ssr: 'src/main.ts', outDir: 'out/vite', sourcemap: true, minify: false } };
