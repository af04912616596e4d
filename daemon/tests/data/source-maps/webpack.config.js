module.exports = ['source-map', 'inline-cheap-module-source-map'].map((devtool) => ({
  mode: devtool === 'source-map' ? 'production' : 'none', target: 'node', entry: './src/main.ts', devtool,
  output: { path: __dirname + '/out/webpack' + (devtool === 'source-map' ? '' : '-cheap'), filename: 'main.js' },
  resolve: { extensions: ['.ts', '.js'] },
  module: { rules: [{ test: /\.ts$/, loader: 'ts-loader', options: { transpileOnly: true, compilerOptions: { sourceMap: true, target: 'es2022' } } }] },
}));
